"""A load for CPython: functions, dictionaries, strings and sorting.

Usage: objects.py SECONDS
"""
import json
import sys
import time


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def words(n):
    count = {}
    for i in range(n):
        word = "w%d" % (i * 7919 % 101)
        count[word] = count.get(word, 0) + 1
    return sorted(count.items(), key=lambda item: (-item[1], item[0]))


def documents(n):
    document = {"rows": [{"id": i, "name": "row %d" % i} for i in range(n)]}
    return json.loads(json.dumps(document))


def main(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fibonacci(14)
        words(500)
        documents(50)


main(float(sys.argv[1]))
