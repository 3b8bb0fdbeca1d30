package main

import (
	"errors"
	"os"
	"runtime/pprof"
)

// startProfile starts a CPU profile; the returned function ends it and writes a heap profile.
func startProfile(name string) (stop func(), err error) {
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
		_ = errors.Join(pprof.WriteHeapProfile(heap), cpu.Close(), heap.Close()) // a failed profile does not fail the run
	}, err
}
