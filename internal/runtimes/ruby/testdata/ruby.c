/* Functions that Ruby exports, in the form in which fulgur reads them: see find_test.go. */
const char ruby_version[] = "3.4.9";

extern int other(int);
__attribute__((visibility("hidden"))) __thread long before = 1, *context;
__attribute__((visibility("hidden"))) volatile long pushed;

#define HIDDEN __attribute__((noinline, noclone, visibility("hidden")))

HIDDEN void push(long n)
{
	pushed += n;
}

HIDDEN int vm_exec(long n)
{
	volatile char buffer[128] = { 0 };

	while (buffer[n]++ < 100)
		n = other(n);
	return n;
}

long rb_thread_current(void)
{
	return context[6];
}

int rb_iseq_eval(long n)
{
	push(n + other(n));
	return vm_exec(n);
}

int rb_iseq_eval_main(long n)
{
	if (other(n))
		return vm_exec(n) + 1;
	return vm_exec(n);
}
