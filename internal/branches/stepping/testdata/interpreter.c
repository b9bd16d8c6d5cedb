/* Interprets byte code: branches whose layout the compiler has to guess. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t stack[64];

__attribute__((noinline)) static void complain(const char *what, uint64_t x)
{
	fprintf(stderr, "%s %lu\n", what, (unsigned long)x);
	exit(1);
}

static uint64_t run(const uint8_t *code, uint64_t rounds)
{
	uint64_t acc = 1, count = rounds;
	int sp = 0;
	for (const uint8_t *p = code;;) {
		switch (*p++) {
		case 0:
			if (sp >= 60)
				complain("overflow", acc);
			stack[sp++] = acc;
			break;
		case 1:
			if (sp <= 0)
				complain("underflow", acc);
			acc += stack[--sp];
			break;
		case 2: acc = acc * 6364136223846793005u + 1442695040888963407u; break;
		case 3:
			if (acc == 0)
				complain("zero", count);
			if (acc & 1)
				p++;
			break;
		case 4: acc ^= acc >> 29; break;
		case 5:
			if (--count == 0)
				return acc;
			p = code;
			break;
		case 6:
			if (acc % 7 == 3)
				acc += 5;
			else if (acc % 11 == 4)
				acc -= 9;
			break;
		default: complain("opcode", p[-1]);
		}
	}
}

int main(int argc, char **argv)
{
	static const uint8_t code[] = {2, 0, 4, 3, 6, 2, 1, 3, 4, 0, 6, 2, 1, 5};
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1ull << 60;
	printf("%lx\n", (unsigned long)run(code, rounds));
	return 0;
}
