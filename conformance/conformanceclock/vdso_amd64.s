//go:build linux

#include "textflag.h"

#define SYS_clock_gettime 228

// clockGettime has the calling convention of C: the clock is in DI, the address of the timespec in SI. It uses no stack
// and no register that the caller expects unchanged.
TEXT ·clockGettime(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$SYS_clock_gettime, AX
	SYSCALL
	CMPL	DI, $0 // CLOCK_REALTIME
	JNE	done
	MOVQ	·wrongBy(SB), CX
	ADDQ	CX, (SI)
done:
	RET

DATA ·clockGettimeAddress(SB)/8, $·clockGettime(SB)
GLOBL ·clockGettimeAddress(SB), NOPTR, $8

GLOBL ·wrongBy(SB), NOPTR, $8
