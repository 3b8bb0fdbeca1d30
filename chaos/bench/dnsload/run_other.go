//go:build !linux

package dnsload

import (
	"context"
	"errors"
	"time"
)

// RunFor requires Linux's batched system calls.
func (l *QueryLoad) RunFor(context.Context, time.Duration) (LoadResult, error) {
	return LoadResult{}, errors.New("load is generated on Linux only")
}
