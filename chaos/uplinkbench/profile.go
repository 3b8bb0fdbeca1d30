package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// profile begins one of processor time; what it returns ends it and writes one of memory.
func profile(name string) (stop func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	cpu, err := os.Create(name + ".cpu")
	if err != nil {
		return nil, err
	}
	heap, err := os.Create(name + ".heap")
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = errors.Join(pprof.WriteHeapProfile(heap), cpu.Close(), heap.Close()) // a profile is an aside
	}, err
}
