//go:build !linux

package dnsload

import (
	"context"
	"errors"
	"time"
)

// Run needs Linux's batched system calls.
func (l *Load) Run(context.Context, time.Duration) (Result, error) {
	return Result{}, errors.New("load is made on Linux alone")
}

// Priority is Linux's alone.
func Priority() {}
