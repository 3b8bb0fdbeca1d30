// Package reqctx provides contexts for objects that are created for every request. A Context behaves like a
// context of the standard library. It can be embedded in another struct, so it needs no allocation of its own.
// An EndHook ends one Context with another, without a map, channel or goroutine. The package never starts a
// goroutine and never changes the result of context.Cause.
package reqctx

import (
	"context"
	"sync"
	"time"
)

// Context ends with its parent, or when EndWithCause is called. It must not be copied after its start. What the
// standard library needs to derive contexts from it is allocated on demand.
type Context struct {
	parent     context.Context
	key, value any
	parentHook EndHook // registered with the parent

	mu        sync.Mutex
	err       error // nil until the end
	cause     error
	firstHook *EndHook
	stdCtx    context.Context // nil until Done or a derivation needs it
	cancelStd context.CancelCauseFunc
}

// NewUnder creates a Context that ends with parent.
func NewUnder(parent context.Context) *Context {
	c := &Context{}
	c.StartUnder(parent)
	return c
}

// StartUnder starts a Context embedded in another struct. It must be called once.
func (c *Context) StartUnder(parent context.Context) { c.StartWithValue(parent, nil, nil) }

// StartWithValue is StartUnder with a value, as by context.WithValue.
func (c *Context) StartWithValue(parent context.Context, key, value any) {
	c.parent, c.key, c.value = parent, key, value
	c.parentHook.WatchContext(parent, (*parentWatcher)(c))
}

// parentWatcher is the Context as an EndHandler of its parent.
type parentWatcher Context

// EndRequest implements EndHandler.
func (b *parentWatcher) EndRequest() {
	c := (*Context)(b)
	c.endOnce(c.parent.Err(), context.Cause(c.parent))
}

// EndWithCause ends the Context with a cause for context.Cause; nil means context.Canceled. Only the first call
// counts. All watchers are notified before it returns.
func (c *Context) EndWithCause(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.parentHook.StopWatching()
	c.endOnce(context.Canceled, cause)
}

func (c *Context) endOnce(err, cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err, c.cause = err, cause
	hooks := c.firstHook
	c.firstHook = nil
	for h := hooks; h != nil; h = h.next {
		h.fired = true
	}
	if c.stdCtx != nil {
		c.cancelStd(cause)
	}
	c.mu.Unlock()
	for hooks != nil {
		h := hooks
		hooks = h.next
		h.handler.EndRequest()
	}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stdContext().Done()
}

// Err implements context.Context.
func (c *Context) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Value implements context.Context.
func (c *Context) Value(key any) any {
	if key == c.key && c.key != nil {
		return c.value
	}
	c.mu.Lock()
	var std context.Context
	if c.stdCtx != nil || c.err != nil {
		std = c.stdContext() // the library looks there for the cause
	}
	c.mu.Unlock()
	if std != nil {
		return std.Value(key)
	}
	return c.parent.Value(key)
}

// stdContext returns a standard context with the same life and the parent's values. The lock must be held.
func (c *Context) stdContext() context.Context {
	if c.stdCtx == nil {
		c.stdCtx, c.cancelStd = context.WithCancelCause(context.WithoutCancel(c.parent))
		if c.err != nil {
			c.cancelStd(c.cause)
		}
	}
	return c.stdCtx
}
