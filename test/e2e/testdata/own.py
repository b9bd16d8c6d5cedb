# Prints "ready", and waits until its standard input ends. Then calls tasks in a random order until
# it has used the CPU for as many seconds as the argument says, and prints the CPU time of each task
# in microseconds, without that of tasks that it calls. Tasks call builtin functions, which are in C.
import json, random, re, sys, time, zlib

try:
    import numpy
except ImportError:
    numpy = None

numbers = [(i * 7919) % 10007 for i in range(3000)]
pairs = [(str(i), i) for i in range(3000)]
text = "word 123 foo 456 " * 300
words = re.compile(r"(\w+) (\d+)")
document = json.dumps({str(i): [i, "x" * (i % 50)] for i in range(300)})
scan = json.scanner.c_make_scanner(json.JSONDecoder())
data = bytes((i * i) % 251 for i in range(10000))
table = bytes(reversed(range(256)))


def own_sorted():
    return sorted(numbers)


def own_update():
    d = {}
    d.update(pairs)
    return d


def own_pattern():
    return words.sub("x", text)


def own_scan():
    return scan(document, 0)


def own_translate():
    return [data.translate(table) for _ in "1"][0].replace(b"abc", b"d") + data * 20


def own_concat():
    s = ""
    for i in range(2000):
        s += str(i)
    return s


def own_loop():
    total = 0
    for i in range(8000):
        total += i * i
    return total


def own_zlib():
    return zlib.compress(data)


def own_numpy():
    return numpy.sort(numpy.arange(20000)[::-1].copy() * 7919 % 10007)


def own_outer():
    total = 0
    for i in range(3000):
        total += i
    call(own_sorted)
    for i in range(3000):
        total += i
    return total


tasks = [own_sorted, own_update, own_pattern, own_scan, own_translate, own_concat, own_loop, own_zlib, own_outer]
if numpy:
    tasks.append(own_numpy)
own = {f.__name__: 0.0 for f in tasks}
inner = [0.0]  # by task that runs, the CPU time of tasks that it called


def call(task):
    begin = time.thread_time()
    inner.append(0.0)
    task()
    took = time.thread_time() - begin
    own[task.__name__] += took - inner.pop()
    inner[-1] += took


print("ready", flush=True)
sys.stdin.read()
end = time.thread_time() + float(sys.argv[1])
while time.thread_time() < end:
    call(random.choice(tasks))
print(json.dumps({name: round(1e6 * t) for name, t in own.items()}))
