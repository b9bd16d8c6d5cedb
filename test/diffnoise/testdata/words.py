# Counts words, sorts them, and writes and reads them as JSON.
import collections
import json
import re
import sys

text = open(sys.argv[1]).read()
word = re.compile(r"[a-z]+")


class Entry:
    def __init__(self, name, count):
        self.name, self.count = name, count

    def rank(self):
        return (-self.count, self.name)


def count(text):
    counts = collections.Counter()
    for m in word.finditer(text):
        counts[m.group()] += 1
    return counts


def order(counts):
    return sorted((Entry(n, c) for n, c in counts.items()), key=Entry.rank)


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        last, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            last, row[j + 1] = row[j + 1], min(row[j] + 1, row[j + 1] + 1, last + (x != y))
    return row[-1]


def nearest(entries):
    return sum(distance(a.name, b.name) for a, b in zip(entries, entries[1:]))


total = 0
for part in range(int(sys.argv[2])):
    entries = order(count(text[part * 10000 : part * 10000 + 40000]))
    document = json.dumps({e.name: {"count": e.count, "rank": i} for i, e in enumerate(entries)})
    total += len(json.loads(document)) + nearest(entries[:400])
print(total)
