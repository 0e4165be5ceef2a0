//go:build linux

#include "textflag.h"

#define SYS_clock_gettime 113

// clockGettime has the calling convention of C: the clock is in R0, the address of the timespec in R1. It uses no stack
// and no register that the caller expects unchanged.
TEXT ·clockGettime(SB),NOSPLIT|NOFRAME,$0
	MOVD	R0, R9
	MOVD	$SYS_clock_gettime, R8
	SVC
	CBNZ	R9, done // not CLOCK_REALTIME
	MOVD	·wrongBy(SB), R10
	MOVD	(R1), R11
	ADD	R10, R11
	MOVD	R11, (R1)
done:
	RET

DATA ·clockGettimeAddress(SB)/8, $·clockGettime(SB)
GLOBL ·clockGettimeAddress(SB), NOPTR, $8

GLOBL ·wrongBy(SB), NOPTR, $8
