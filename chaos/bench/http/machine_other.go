//go:build !linux

package main

import (
	"errors"
	"time"
)

func pinToCore(int) error { return errors.New("CPU time is measured on Linux only") }

func useFineTimers() {}

func sleepNanos(ns int64) { time.Sleep(time.Duration(ns)) }

func processTree(pid int) []int { return []int{pid} }
