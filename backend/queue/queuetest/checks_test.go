package queuetest

import "testing"

func TestChecks(t *testing.T) { Test(t, inMemory(nil)) }
