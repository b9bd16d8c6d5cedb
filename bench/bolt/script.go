package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
)

// transactions is the number of transactions of a script, which runs for about a second.
const transactions = 60_000

// writeScript writes the script for sqlite: accounts, transfers between them, and
// queries of balances. Scripts of different seeds have different numbers. A script
// can be repeated.
func writeScript(path string, seed uint64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	random := rand.New(rand.NewPCG(seed, 0)).IntN
	const accounts, branches = 2000, 50

	fmt.Fprint(w, `DROP TABLE IF EXISTS account;
DROP TABLE IF EXISTS log;
CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, balance INT, branch INT);
CREATE INDEX account_branch ON account (branch);
CREATE TABLE log (id INTEGER PRIMARY KEY, source INT, target INT, amount INT, note TEXT);
BEGIN;
`)
	for id := range accounts {
		fmt.Fprintf(w, "INSERT INTO account VALUES (%d, 'owner %d', %d, %d);\n", id, random(1000), random(1000), random(branches))
	}
	fmt.Fprintln(w, "COMMIT;")
	for i := range transactions {
		source, target, amount := random(accounts), random(accounts), random(100)
		fmt.Fprintf(w, `BEGIN;
UPDATE account SET balance = balance - %[3]d WHERE id = %[1]d;
UPDATE account SET balance = balance + %[3]d WHERE id = %[2]d;
INSERT INTO log (source, target, amount, note) VALUES (%[1]d, %[2]d, %[3]d, 'transfer ' || %[4]d);
COMMIT;
SELECT owner, balance FROM account WHERE id = %[1]d OR id = %[2]d;
`, source, target, amount, i)
		if i%4 == 0 {
			fmt.Fprintf(w, "SELECT count(*), sum(balance) FROM account WHERE branch = %d AND balance > %d;\n", random(branches), amount)
		}
		if i%5 == 0 {
			fmt.Fprintf(w, `SELECT log.amount, account.owner FROM log JOIN account ON account.id = log.source
WHERE log.id BETWEEN %d AND %d ORDER BY log.amount DESC LIMIT 3;
`, i-20, i)
		}
	}
	return w.Flush()
}
