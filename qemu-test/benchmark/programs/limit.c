// SPDX-License-Identifier: GPL-2.0
/*
 * What this machine can do at most: copies of memory, and the CRC-32 of the ICRC by
 * tables and, where the processor can, by carry-less multiplication. Prints MB/s.
 */
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK	(64 << 10)
#define BLOCKS	64
#define SECONDS	0.1

static uint32_t table[8][256];

static void make_tables(void)
{
	for (uint32_t byte = 0; byte < 256; byte++) {
		uint32_t state = byte;

		for (int bit = 0; bit < 8; bit++)
			state = (state >> 1) ^ (0xedb88320 & -(state & 1));
		table[0][byte] = state;
	}
	for (int slice = 1; slice < 8; slice++)
		for (int byte = 0; byte < 256; byte++) {
			uint32_t before = table[slice - 1][byte];

			table[slice][byte] = (before >> 8) ^ table[0][before & 0xff];
		}
}

static uint32_t crc_tables(uint32_t state, const uint8_t *data, size_t len)
{
	for (; len >= 8; data += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, data, 8);
		word ^= state;
		state = 0;
		for (int i = 0; i < 8; i++)
			state ^= table[7 - i][(word >> (8 * i)) & 0xff];
	}
	while (len--)
		state = (state >> 8) ^ table[0][(state ^ *data++) & 0xff];
	return state;
}

/* x^(128+64) and x^128, x^(512+64) and x^512 modulo the polynomial, bit-reflected. */
#define FOLD_1	_mm_set_epi64x(0x0ccaa009e, 0x1751997d0)
#define FOLD_4	_mm_set_epi64x(0x1c6e41596, 0x154442bd4)

__attribute__((target("pclmul,sse4.1")))
static __m128i fold(__m128i state, __m128i next, __m128i by)
{
	__m128i low = _mm_clmulepi64_si128(state, by, 0x00);
	__m128i high = _mm_clmulepi64_si128(state, by, 0x11);

	return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* For lengths that are multiples of 64. The last 16 bytes go through the tables. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc_multiply(uint32_t state, const uint8_t *data, size_t len)
{
	__m128i lane[4];
	uint8_t rest[16];

	for (int i = 0; i < 4; i++)
		lane[i] = _mm_loadu_si128((const __m128i *)data + i);
	lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(state));
	for (data += 64, len -= 64; len; data += 64, len -= 64)
		for (int i = 0; i < 4; i++)
			lane[i] = fold(lane[i], _mm_loadu_si128((const __m128i *)data + i), FOLD_4);
	for (int i = 1; i < 4; i++)
		lane[0] = fold(lane[0], lane[i], FOLD_1);
	_mm_storeu_si128((__m128i *)rest, lane[0]);
	return crc_tables(0, rest, sizeof(rest));
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static uint8_t *from, *to;

/* What the compiler must take for used. */
static void use(uint32_t value)
{
	__asm__ __volatile__("" : : "r"(value) : "memory");
}

static void do_copy(size_t at)
{
	memcpy(to + at, from + at, BLOCK);
	use(to[at]);
}

static void do_tables(size_t at) { use(crc_tables(~0u, from + at, BLOCK)); }
static void do_multiply(size_t at) { use(crc_multiply(~0u, from + at, BLOCK)); }

static void measure(const char *name, void (*work)(size_t))
{
	double began = now(), took;
	size_t done = 0;

	do {
		for (int i = 0; i < 8; i++, done++)
			work(done % BLOCKS * BLOCK);
		took = now() - began;
	} while (took < SECONDS);
	printf("%s %.1f\n", name, done * (double)BLOCK / took / 1e6);
}

int main(void)
{
	from = malloc(BLOCKS * BLOCK);
	to = malloc(BLOCKS * BLOCK);
	if (!from || !to)
		return 1;
	for (int i = 0; i < BLOCKS * BLOCK; i++)
		from[i] = i * 2654435761u >> 24;
	memset(to, 1, BLOCKS * BLOCK);
	make_tables();
	measure("copy", do_copy);
	measure("crc_tables", do_tables);
	if (!__builtin_cpu_supports("pclmul"))
		return 0;
	if (crc_tables(~0u, from, BLOCK) != crc_multiply(~0u, from, BLOCK)) {
		fprintf(stderr, "the two CRCs differ\n");
		return 1;
	}
	measure("crc_pclmul", do_multiply);
	return 0;
}
