package main

import (
	"bufio"
	"context"
	"fmt"
)

// sqlite is the sqlite3 shell, with a database in memory.
var sqlite = subject{
	name: "sqlite", source: "sqlite3", build: buildSQLite, writeLoad: writeSQL, size: transactions,
	start: startInterpreter(".read %s", ":memory:"),
}

// buildSQLite compiles sqlite as one file, as its authors recommend.
func buildSQLite(ctx context.Context, source, out string) error {
	for _, argv := range [][]string{
		{"./configure", "--disable-tcl", "--disable-readline"},
		{"make", "sqlite3.c", "shell.c"},
		{"gcc", "-O2", unsplit, "-fPIE", "-pie", relocations, "-DSQLITE_THREADSAFE=0", "-o", out, "shell.c", "sqlite3.c", "-lm", "-ldl"},
	} {
		if err := executeIn(ctx, source, argv...); err != nil {
			return err
		}
	}
	return nil
}

// transactions is the number of transactions of a script.
const transactions = 60_000

// writeSQL writes accounts, transfers between them, and queries of balances.
func writeSQL(w *bufio.Writer, size int, random func(int) int) {
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
	for i := range size {
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
}
