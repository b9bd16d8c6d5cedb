import json
import re


def walk(n):
    if n:
        return walk(n - 1)
    text = json.dumps({str(i): [i, str(i)] for i in range(40)})
    return sorted(re.findall(r"\d+", text), key=lambda s: (len(s), s))


while True:
    walk(25)
