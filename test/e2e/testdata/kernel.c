/*
 * Code that is linked like a kernel: at a kernel address, and with the symbols by which perf
 * finds it. It never runs.
 */
__asm__(".text\n.globl _text, _stext\n_text:\n.fill 64, 1, 0x90\n_stext:\n");

volatile int queue[64], woken, idle;

static inline int pick(int from)
{
	for (int i = from; i < 64; i++)
		if (queue[i] > woken)
			return i;
	return -1;
}

static __attribute__((noinline)) int balance(int cpu)
{
	int moved = 0;

	for (int i = 0; i < cpu; i++) {
		if (queue[i] & 1)
			moved += pick(i);
		else if (queue[i] > 7)
			queue[i] = 0;
	}
	return moved;
}

__attribute__((noinline)) int schedule(int cpu)
{
	int next = pick(cpu);

	if (next < 0)
		next = balance(cpu);
	if (!next)
		idle++;
	return next;
}

int syscall_entry(int number, int arg)
{
	switch (number) {
	case 0:
		return schedule(arg);
	case 1:
		woken = arg;
		return balance(arg) + schedule(0);
	default:
		return -38;
	}
}

void _start(void)
{
	while (woken < 100)
		syscall_entry(woken & 3, idle);
}
