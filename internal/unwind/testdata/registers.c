/*
 * Functions whose frames depend on registers that calls may change, as in the assembly of
 * cryptographic libraries, and in compilers' outlined functions.
 */
#define FUNCTION(name, code)                                                                       \
	extern void name(void);                                                                    \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name                      \
		":\n.cfi_startproc\n" code "\n.cfi_endproc\n.size " #name ", . - " #name);

#if defined(__x86_64__)

/* Changes only r8. */
FUNCTION(spin, "mov $100000, %r8d\n"
	       "1: dec %r8d\n"
	       "jnz 1b\n"
	       "ret")

FUNCTION(cfa_in_register, "lea 8(%rsp), %rax\n"
			  ".cfi_def_cfa rax, 0\n"
			  "sub $80, %rsp\n"
			  "and $-64, %rsp\n"
			  "call spin\n"
			  "lea -8(%rax), %rsp\n"
			  ".cfi_def_cfa rsp, 8\n"
			  "ret")

/* The CFA is *(rsp + 8 + 8 * r9) + 8. */
FUNCTION(cfa_above_array,
	 "mov $5, %r9d\n"
	 "mov %rsp, %rax\n"
	 ".cfi_def_cfa_register rax\n"
	 "sub $128, %rsp\n"
	 "and $-64, %rsp\n"
	 "mov %rax, 8(%rsp,%r9,8)\n"
	 ".cfi_escape 0x0f, 10, 0x77, 8, 0x79, 0, 0x38, 0x1e, 0x22, 0x06, 0x23, 8\n"
	 "call spin\n"
	 "mov 8(%rsp,%r9,8), %rsp\n"
	 ".cfi_def_cfa rsp, 8\n"
	 "ret")

FUNCTION(caller_in_register, "pop %rdi\n"
			     ".cfi_adjust_cfa_offset -8\n"
			     ".cfi_register rip, rdi\n"
			     "sub $16, %rsp\n"
			     ".cfi_adjust_cfa_offset 16\n"
			     "call spin\n"
			     "add $16, %rsp\n"
			     ".cfi_adjust_cfa_offset -16\n"
			     "push %rdi\n"
			     ".cfi_adjust_cfa_offset 8\n"
			     ".cfi_offset rip, -8\n"
			     "ret")

/* The caller's stack pointer is rsp + 72, and the CFA rsp. */
FUNCTION(cfa_below_frame, "sub $64, %rsp\n"
			  ".cfi_def_cfa rsp, 0\n"
			  ".cfi_offset rip, 64\n"
			  ".cfi_escape 0x16, 7, 3, 0x77, 0xc8, 0\n"
			  "call spin\n"
			  "add $64, %rsp\n"
			  ".cfi_def_cfa rsp, 8\n"
			  ".cfi_offset rip, -8\n"
			  ".cfi_same_value rsp\n"
			  "ret")

static void (*const volatile functions[])(void) = {
	cfa_in_register,
	cfa_above_array,
	caller_in_register,
	cfa_below_frame,
};

#elif defined(__aarch64__)

/* Changes only x9. */
FUNCTION(spin, "mov x9, #50000\n"
	       "1: subs x9, x9, #1\n"
	       "b.ne 1b\n"
	       "ret")

FUNCTION(cfa_in_register, "mov x10, sp\n"
			  ".cfi_def_cfa x10, 0\n"
			  "stp x29, x30, [sp, #-32]!\n"
			  ".cfi_offset x29, -32\n"
			  ".cfi_offset x30, -24\n"
			  "bl spin\n"
			  "ldp x29, x30, [sp], #32\n"
			  ".cfi_restore x29\n"
			  ".cfi_restore x30\n"
			  ".cfi_def_cfa sp, 0\n"
			  "ret")

FUNCTION(caller_in_register, "mov x15, x30\n"
			     ".cfi_register x30, x15\n"
			     "sub sp, sp, #16\n"
			     ".cfi_adjust_cfa_offset 16\n"
			     "bl spin\n"
			     "add sp, sp, #16\n"
			     ".cfi_adjust_cfa_offset -16\n"
			     "mov x30, x15\n"
			     ".cfi_restore x30\n"
			     "ret")

static void (*const volatile functions[])(void) = { cfa_in_register, caller_in_register };

#endif

#define COUNT (sizeof(functions) / sizeof(functions[0]))

__attribute__((noinline)) static void each(unsigned n)
{
	functions[n % COUNT]();
	cfa_in_register();
}

int main(void)
{
	for (unsigned n = 0;; n++)
		each(n);
}
