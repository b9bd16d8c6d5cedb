"""Prints its own Python stacks, which python_test.go compares with samples of fulgur.

frames.py threads: each thread notes its own stack and then burns time in the same place
for ever. Prints {thread ID: [[qualified name, file, line], ...]}, leaf first.

frames.py calls: traces one round of calls, prints which line of which function calls which
other, and then calls on for ever.

frames.py processes: prints "ready", waits for the end of its input, and then runs processes one
after the other. Each notes its own stack, burns 50 ms of CPU time in the same place, and prints
the stack. Prints each different stack.
"""
import functools
import hashlib
import inspect
import json
import re
import subprocess
import sys
import threading
import time

DATA = b"x" * 50000000
noted, ready = {}, threading.Semaphore(0)


def name(code):
    return getattr(code, "co_qualname", code.co_name)


def note():
    frame, chain = sys._getframe(1), []
    while frame is not None:
        chain.append([name(frame.f_code), frame.f_code.co_filename, frame.f_lineno])
        frame = frame.f_back
    noted[threading.get_native_id()] = chain
    ready.release()


def burn():
    while True: pass


def burn_hashing():
    while True: hashlib.sha256(DATA)


def leaf():
    [note(), burn()]


def plain():
    leaf()


def hashing():
    [note(), burn_hashing()]


def generators():
    def inner():
        yield 1
        leaf()
        yield 2

    def outer():
        yield from inner()

    for _ in outer():
        pass


def by_key():
    return sorted([1, 2], key=lambda x:
                  leaf())


def by_callback():
    re.sub("a", lambda m: functools.reduce(lambda a, b: leaf(), [1, 2]), "ba")


async def awaited():
    return leaf()


async def awaiting():
    return [await awaited() for _ in range(2)]


def asynchronous():
    import asyncio
    asyncio.run(awaiting())


class Names:
    class Inner:
        def __getattr__(self, name):
            return self.fünf函数(name)

        def fünf函数(self, name):
            return json.loads('{"a": 1}', object_hook=lambda o: [leaf() for _ in o])


def attributes():
    return Names.Inner().nothing


def executed():
    exec(compile("def dyn():\n  leaf()\n\ndyn()\n", "<generated>", "exec"), globals())


class Manager:
    def __enter__(self):
        leaf()

    def __exit__(self, *args):
        pass


def managed():
    with Manager():
        pass


def recursive(n=100):
    if n:
        return recursive(n - 1)
    leaf()


def deep():
    recursive(400)


def deep_through_c(n=30):
    if n:
        return list(map(deep_through_c, [n - 1]))
    leaf()


def threads():
    kinds = [plain, hashing, generators, by_key, by_callback, asynchronous, attributes, executed, managed, recursive,
             deep, deep_through_c, plain, plain]
    for kind in kinds:
        threading.Thread(target=kind, daemon=True).start()
    for _ in kinds:
        ready.acquire()
    print(json.dumps({"noted": noted}), flush=True)
    threading.Event().wait()


# The functions of the calls. Each returns soon.

def count(n):
    total = 0
    for i in range(n):
        total += i * n
    return total


def counted(n):
    yield count(n)
    for i in range(3):
        yield count(i) + \
            count(n)


def keyed(x):
    return -count(x)


class Tree:
    def __init__(self, depth):
        self.children = [Tree(depth - 1)
                         for _ in range(2)] if depth else []

    def walk(self):
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def size(self):
        return sum(map(Tree.one, self.walk()))

    def one(self):
        try:
            return count(5) and 1
        finally:
            count(2)

    def __lt__(self, other):
        return self.size < other.size


async def step(n):
    return count(n)


async def steps():
    return [await step(i) for i in range(4)]


def drive(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value


def recurse(n):
    return count(3) if n == 0 else recurse(n - 1) + \
        1


number = 0


def generated():
    # A function with its own name, file and address, which is freed at once. It takes long enough
    # for many samples.
    global number
    number += 1
    source = "\n" * (number % 7) + "def dyn%d():\n  return count(400)\ndyn%d()\n" % (number, number)
    exec(compile(source, "<generated%d>" % number, "exec"), {"count": count})


def work():
    sorted(range(9), key=keyed)
    sum(counted(20))
    list(counted(30))
    sorted([Tree(2), Tree(1)])
    drive(steps())
    recurse(20)
    generated()
    re.sub("a", lambda m: str(count(9)), "banana")
    hashlib.sha256(DATA[:100000]).hexdigest()


def calls():
    edges, lines, makers = set(), {}, set()

    def trace(frame, event, arg):
        code = frame.f_code
        known = lines.setdefault((name(code), code.co_filename), {code.co_firstlineno})
        known.add(frame.f_lineno)
        if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
            makers.add(name(code))
        if event == "call" and frame.f_back is not None:
            back = frame.f_back
            edges.add((name(back.f_code), back.f_code.co_filename, back.f_lineno, name(code), code.co_filename))
        return trace

    sys.settrace(trace)
    for _ in range(3):
        work()
    sys.settrace(None)
    print(json.dumps({"edges": sorted(edges), "lines": [[*key, sorted(value)] for key, value in lines.items()],
                      "makers": sorted(makers)}), flush=True)
    while True:
        work()


def burn_briefly():
    end = time.process_time() + 0.05
    while time.process_time() < end: pass


def process():
    [note(), burn_briefly()]
    print(json.dumps(noted.popitem()[1]))


def processes():
    print("ready", flush=True)
    sys.stdin.read()
    stacks = {subprocess.check_output([sys.executable, sys.argv[0], "process"]).decode() for _ in range(30)}
    print(*stacks, sep="", end="")


{"threads": threads, "calls": calls, "process": process, "processes": processes}[sys.argv[1]]()
