/* Takes the same branches over and over; the labels tell the test which. */
#include <stddef.h>

static char from[3], to[3];

int main(void)
{
	__asm__ volatile(
		"cycle_start:\n"
		"cycle_call: call cycle_f\n"
		"cycle_back: jmp cycle_l1\n"
		"	ud2\n"
		"cycle_l1: mov $3, %%ebx\n"
		"cycle_l2: dec %%ebx\n"
		"cycle_loop: jnz cycle_l2\n"
		"	cmp $1, %%ebx\n"
		"	je cycle_l1\n"
		"	mov %0, %%rsi\n"
		"	mov %1, %%rdi\n"
		"	mov $3, %%ecx\n"
		"	rep movsb\n"
		"	lea cycle_l3(%%rip), %%rax\n"
		"cycle_indirect: jmp *%%rax\n"
		"	ud2\n"
		"cycle_l3: nop\n"
		"cycle_again: jmp cycle_start\n"
		"cycle_f: nopw 0(%%rax,%%rax,1)\n"
		"cycle_ret: ret\n"
		:
		: "r"(from), "r"(to)
		: "rax", "rbx", "rcx", "rsi", "rdi", "memory");
	return 0;
}
