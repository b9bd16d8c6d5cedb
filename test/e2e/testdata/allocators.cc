/*
 * Allocates memory by the functions of C and C++, frees some of it, and prints how much each of
 * its own functions allocated and leaked: objects and bytes, for each r on standard input. It has
 * jemalloc's own functions only if jemalloc is loaded.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <unistd.h>

extern "C" {
__attribute__((weak)) void *mallocx(size_t, int);
__attribute__((weak)) void *mi_malloc(size_t);
__attribute__((weak)) void *rallocx(void *, size_t, int);
__attribute__((weak)) void dallocx(void *, int);
__attribute__((weak)) void sdallocx(void *, size_t, int);
}

constexpr int rounds = 40;

struct account {
	const char *name;
	long objects, bytes, live_objects, live_bytes;

	void made(void *p, long size)
	{
		if (!p)
			abort();
		memset(p, 1, size);
		objects++;
		bytes += size;
		live_objects++;
		live_bytes += size;
	}

	void freed(long size)
	{
		live_objects--;
		live_bytes -= size;
	}
};

/* A function that allocates size bytes with how, and frees two of three with release. */
#define ALLOCATES(function, length, how, release)                                                  \
	static account account_##function = { #function, 0, 0, 0, 0 };                             \
	extern "C" __attribute__((noinline)) void function(int round)                              \
	{                                                                                          \
		long size = (length);                                                              \
		void *volatile p = (how);                                                          \
		account_##function.made(p, size);                                                  \
		if (round % 3 == 0)                                                                \
			return;                                                                    \
		release;                                                                           \
		account_##function.freed(size);                                                    \
	}

static void *stored(size_t alignment, size_t size)
{
	void *p;

	return posix_memalign(&p, alignment, size) ? NULL : p;
}

struct alignas(64) wide {
	char bytes[64];
};

ALLOCATES(by_malloc, round * 100, malloc(size), free(p))
ALLOCATES(by_large, round * 300000L, malloc(size), free(p))
ALLOCATES(by_calloc, round * 90, calloc(round, 90), free(p))
ALLOCATES(by_posix_memalign, round * 10, stored(round % 2 ? 16 : 4096, size), free(p))
ALLOCATES(by_aligned_alloc, round * 64, aligned_alloc(64, size), free(p))
ALLOCATES(by_memalign, round * 5, memalign(32, size), free(p))
ALLOCATES(by_valloc, round * 7, valloc(size), free(p))
ALLOCATES(by_new, round * 30, operator new(size), operator delete(p))
ALLOCATES(by_new_sized, round * 30, operator new(size), operator delete(p, size))
ALLOCATES(by_new_array, round * 31, new char[size], delete[] (char *)p)
ALLOCATES(by_new_nothrow,
	  round * 32, operator new(size, std::nothrow), operator delete(p, std::nothrow))
ALLOCATES(by_new_aligned, 64, new wide, delete(wide *)p)
ALLOCATES(by_mallocx, round * 40, mallocx(size, 0), dallocx(p, 0))
ALLOCATES(by_mallocx_sized, round * 41, mallocx(size, 0), sdallocx(p, size, 0))

static account account_by_realloc = { "by_realloc", 0, 0, 0, 0 };
extern "C" __attribute__((noinline)) void by_realloc(int round)
{
	account &a = account_by_realloc;
	void *volatile p = realloc(NULL, round);

	a.made(p, round);
	p = realloc(p, round * 400);
	a.made(p, round * 400);
	a.freed(round);
	if (round % 3 == 0)
		return;
	free(p);
	a.freed(round * 400);
}

static account account_by_rallocx = { "by_rallocx", 0, 0, 0, 0 };
extern "C" __attribute__((noinline)) void by_rallocx(int round)
{
	account &a = account_by_rallocx;
	void *volatile p = mallocx(round, 0);

	a.made(p, round);
	p = rallocx(p, round * 400, 0);
	a.made(p, round * 400);
	a.freed(round);
}

static long refused;

/* Requests too much, so that operator new throws an exception. mimalloc ends the program. */
__attribute__((noinline)) static void request_too_much()
{
	volatile size_t size = (size_t)1 << 60;

	if (mi_malloc)
		return;
	try {
		operator delete(operator new(size));
	} catch (const std::bad_alloc &) {
		refused++;
	}
}

int main(int argc, char **argv)
{
	account *all[] = { &account_by_malloc,	      &account_by_large,
			   &account_by_calloc,	      &account_by_posix_memalign,
			   &account_by_aligned_alloc, &account_by_memalign,
			   &account_by_valloc,	      &account_by_new,
			   &account_by_new_sized,     &account_by_new_array,
			   &account_by_new_nothrow,   &account_by_new_aligned,
			   &account_by_realloc,	      &account_by_mallocx,
			   &account_by_mallocx_sized, &account_by_rallocx };
	void (*functions[])(int) = { by_malloc,		by_large,	  by_calloc,
				     by_posix_memalign, by_aligned_alloc, by_memalign,
				     by_valloc,		by_new,		  by_new_sized,
				     by_new_array,	by_new_nothrow,	  by_new_aligned,
				     by_realloc };
	void (*extended[])(int) = { by_mallocx, by_mallocx_sized, by_rallocx };
	char command;

	if (argc < 2 || strcmp(argv[1], "serve"))
		return 1;
	while (read(0, &command, 1) == 1) {
		for (int round = 1; round <= rounds; round++) {
			request_too_much();
			for (auto f : functions)
				f(round);
			for (auto f : extended)
				if (mallocx)
					f(round);
		}
		for (account *a : all)
			printf("%s_objects %ld\n%s_bytes %ld\n%s_live_objects %ld\n%s_live_bytes "
			       "%ld\n",
			       a->name, a->objects, a->name, a->bytes, a->name, a->live_objects,
			       a->name, a->live_bytes);
		printf("refused %ld\n", refused);
		printf("end 0\n");
		fflush(stdout);
	}
	return 0;
}
