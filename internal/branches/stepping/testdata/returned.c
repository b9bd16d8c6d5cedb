/*
 * Calls a function in a loop, whose return the test probes: the kernel then replaces its return
 * address. Exits with code 3 if it computes wrong.
 */
__attribute__((noinline)) unsigned long probe_work(unsigned long n)
{
	unsigned long sum = 0;

	for (; n > 0; n--) {
		sum += n;
		__asm__ volatile("" : "+r"(sum));
	}
	return sum;
}

int main(void)
{
	for (;;)
		if (probe_work(10) != 55)
			return 3;
}
