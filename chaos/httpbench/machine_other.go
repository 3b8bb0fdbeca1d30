//go:build !linux

package main

import (
	"errors"
	"os/exec"
	"time"
)

func alone(int) error { return errors.New("processor time is measured on Linux alone") }

func dieWithUs(*exec.Cmd) {}

func sleepFinely() {}

func sleepNanos(ns int64) { time.Sleep(time.Duration(ns)) }

func processorTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func residentKB(int) (int64, error) { return 0, errors.ErrUnsupported }

func machineLoad() string { return "unknown" }

func family(pid int) []int { return []int{pid} }
