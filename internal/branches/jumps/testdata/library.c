/* A library that a program loads and unloads. */
void step(unsigned long i, volatile unsigned long *to)
{
	if (i % 4 == 0)
		__asm__ volatile("nop");
	else
		*to += i;
}
