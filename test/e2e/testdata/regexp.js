// Prints an empty account, and runs a regular expression until it is killed.
'use strict';

const line = 'user@example.com, 2026-11-28 "GET /a/b HTTP/1.1" 200 ' + 'x'.repeat(100);
const log = /^(\S+)@(\S+), (\d+-\d+-\d+) "(GET|POST) (\S+) HTTP\/([\d.]+)" (\d+) (x*)$/;

function match() {
  for (let i = 0; i < 20000; i++) log.exec(line);
  setImmediate(match);
}

console.log('{}');
match();
