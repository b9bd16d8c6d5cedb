// steps repeats about twenty small steps. The last argument makes one of them, checksum, slower by
// that many repetitions, of the 40 that it has by itself.
//
// usage: steps ROUNDS EXTRA
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP __attribute__((noinline, noclone))
#define SIZE 4096

static uint8_t text[SIZE], packed[2 * SIZE];
static uint32_t numbers[SIZE / 4];
static double matrix[3][24][24];
static volatile uint64_t result;
static uint64_t state = 88172645463325252u;

STEP static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

STEP static void fill(void)
{
	for (int i = 0; i < SIZE; i++) {
		uint64_t r = next();
		text[i] = r % 6 ? 'a' + r / 8 % 8 : ' ';
	}
}

STEP static uint32_t checksum(int repetitions)
{
	uint32_t a = 1, b = 0;
	for (int r = 0; r < repetitions; r++)
		for (int i = 0; i < SIZE / 16; i++) {
			a = (a + text[i]) % 65521;
			b = (b + a) % 65521;
		}
	return b << 16 | a;
}

STEP static int words(void)
{
	int n = 0;
	for (int i = 1; i < SIZE; i++)
		n += text[i] != ' ' && text[i - 1] == ' ';
	return n;
}

STEP static uint64_t hash(const uint8_t *from, int n)
{
	uint64_t h = 14695981039346656037u;
	for (int i = 0; i < n; i++)
		h = (h ^ from[i]) * 1099511628211u;
	return h;
}

STEP static uint64_t hash_words(void)
{
	uint64_t sum = 0;
	for (int i = 0, start = 0; i < SIZE; i++)
		if (text[i] == ' ') {
			sum += hash(text + start, i - start);
			start = i + 1;
		}
	return sum;
}

STEP static int match_length(int a, int b)
{
	int n = 0;
	while (b + n < SIZE && n < 64 && text[a + n] == text[b + n])
		n++;
	return n;
}

STEP static int compress_text(void)
{
	static int last[65536];
	int out = 0;
	memset(last, 0xff, 1024);
	for (int i = 0; i + 2 < SIZE;) {
		int key = text[i] % 16 << 4 | text[i + 1] % 16, at = last[key], n = 0;
		if (at >= 0 && at < i)
			n = match_length(at, i);
		last[key] = i;
		packed[out++] = n > 2 ? 0x80 + n : text[i];
		i += n > 2 ? n : 1;
	}
	return out;
}

STEP static void decompress(int n)
{
	for (int i = n; i-- > 0;)
		packed[SIZE + i] = packed[i] ^ 0x55;
}

STEP static void draw_numbers(void)
{
	for (int i = 0; i < SIZE / 4; i++)
		numbers[i] = next();
}

STEP static void insertion(uint32_t *v, int n)
{
	for (int i = 1; i < n; i++) {
		uint32_t x = v[i];
		int j = i;
		for (; j > 0 && v[j - 1] > x; j--)
			v[j] = v[j - 1];
		v[j] = x;
	}
}

STEP static void sort(uint32_t *v, int n)
{
	while (n > 16) {
		uint32_t pivot = v[n / 2];
		int i = 0, j = n - 1;
		while (i <= j) {
			while (v[i] < pivot)
				i++;
			while (v[j] > pivot)
				j--;
			if (i <= j) {
				uint32_t t = v[i];
				v[i++] = v[j];
				v[j--] = t;
			}
		}
		sort(v, j + 1);
		v += i;
		n -= i;
	}
	insertion(v, n);
}

STEP static int search(uint32_t x)
{
	int low = 0, high = SIZE / 4;
	while (low < high) {
		int middle = (low + high) / 2;
		if (numbers[middle] < x)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

STEP static int search_all(void)
{
	int sum = 0;
	for (int i = 0; i < 256; i++)
		sum += search(next());
	return sum;
}

STEP static int bits(void)
{
	int n = 0;
	for (int i = 0; i < SIZE / 4; i++)
		for (uint32_t x = numbers[i]; x; x &= x - 1)
			n++;
	return n;
}

STEP static int compare(const void *a, const void *b)
{
	return *(const uint8_t *)a - *(const uint8_t *)b;
}

STEP static void sort_bytes(void)
{
	qsort(packed, 256, 1, compare);
}

STEP static void multiply(void)
{
	for (int i = 0; i < 24; i++)
		for (int j = 0; j < 24; j++) {
			double sum = i == j;
			for (int k = 0; k < 24; k++)
				sum += matrix[0][i][k] * matrix[1][k][j];
			matrix[2][i][j] = sum / 2;
		}
}

STEP static void transpose(void)
{
	for (int i = 0; i < 24; i++)
		for (int j = 0; j < 24; j++)
			matrix[1][j][i] = matrix[2][i][j];
}

STEP static int encode(void)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	int out = 0;
	for (int i = 0; i + 2 < SIZE; i += 3) {
		uint32_t v = text[i] << 16 | text[i + 1] << 8 | text[i + 2];
		for (int s = 18; s >= 0; s -= 6)
			packed[out++] = digits[v >> s & 63];
	}
	return out;
}

STEP static int print_numbers(void)
{
	char line[32];
	int n = 0;
	for (int i = 0; i < 96; i++)
		n += snprintf(line, sizeof line, "%u %x", numbers[i], i);
	return n;
}

struct node {
	struct node *next;
	uint32_t value;
};

STEP static struct node *build(void)
{
	struct node *list = NULL;
	for (int i = 0; i < 128; i++) {
		struct node *n = malloc(sizeof *n);
		if (!n)
			abort();
		n->value = numbers[i];
		n->next = list;
		list = n;
	}
	return list;
}

STEP static uint32_t drop(struct node *list)
{
	uint32_t sum = 0;
	while (list) {
		struct node *n = list->next;
		sum += list->value;
		free(list);
		list = n;
	}
	return sum;
}

STEP static void process_text(int extra)
{
	fill();
	result += checksum(40 + extra);
	result += words() + hash_words();
	decompress(compress_text());
	result += encode();
	sort_bytes();
}

STEP static void process_numbers(void)
{
	draw_numbers();
	result += bits() + print_numbers();
	result += drop(build());
	sort(numbers, SIZE / 4);
	result += search_all();
	multiply();
	transpose();
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	for (int i = 0; i < 24; i++)
		for (int j = 0; j < 24; j++)
			matrix[0][i][j] = matrix[1][i][j] = (double)(i + j) / 48;
	for (int i = atoi(argv[1]); i > 0; i--) {
		process_text(atoi(argv[2]));
		process_numbers();
	}
	return 0;
}
