// Generates two functions that keep frame pointers, at a fixed address: the outer one calls the
// inner one, which counts and then calls step_work.
#include <err.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PLACE ((void *)0x700000000000)
#define INNER 0x20 // from the outer function

#if defined(__x86_64__)
static const uint8_t outer[] = {
	0x55, 0x48,	 0x89, 0xe5, // push %rbp; mov %rsp, %rbp
	0xe8, INNER - 9, 0,    0,    0, // call inner
	0x5d, 0xc3, // pop %rbp; ret
};
static const uint8_t inner[] = {
	0x55, 0x48, 0x89, 0xe5, 0xb9, 0, 0, 0, 0x10, // mov $0x10000000, %ecx
	0xff, 0xc9, 0x75, 0xfc, // dec %ecx; jnz
	0xff, 0xd7, 0x5d, 0xc3, // call *%rdi
};
#else
static const uint32_t outer[] = {
	0xa9bf7bfd, 0x910003fd, // stp x29, x30, [sp, #-16]!; mov x29, sp
	0x94000006, // bl inner
	0xa8c17bfd, 0xd65f03c0, // ldp x29, x30, [sp], #16; ret
};
static const uint32_t inner[] = {
	0xa9bf7bfd, 0x910003fd, 0x52a20001, // mov w1, #0x10000000
	0x71000421, 0x54ffffe1, // subs w1, w1, #1; b.ne
	0xd63f0000, 0xa8c17bfd, 0xd65f03c0, // blr x0
};
#endif

static volatile unsigned long sum;

__attribute__((noinline)) static void step_work(void)
{
	for (unsigned long i = 0; i < 100000000; i++)
		sum += i;
}

int main(void)
{
	char *at = mmap(PLACE, 4096, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (at != PLACE)
		err(1, "mmap");
	memcpy(at, outer, sizeof outer);
	memcpy(at + INNER, inner, sizeof inner);
	__builtin___clear_cache(at, at + 4096);
	if (mprotect(at, 4096, PROT_READ | PROT_EXEC) < 0)
		err(1, "mprotect");
	((void (*)(void (*)(void)))PLACE)(step_work);
	return 0;
}
