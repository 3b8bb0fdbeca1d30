package lifetime

import (
	"context"
	"sync"
	"time"
)

// Context ends with its parent, or when End is called. It must not be copied once begun. What the standard library needs
// to derive others from it is made when it asks.
type Context struct {
	parent     context.Context
	key, value any
	above      Hook // at the parent

	mu    sync.Mutex
	err   error // nil until the end
	cause error
	first *Hook
	std   context.Context // nil until somebody asks for a channel
	stop  context.CancelCauseFunc
}

// Under begins a Context that ends with parent.
func Under(parent context.Context) *Context {
	c := &Context{}
	c.Begin(parent)
	return c
}

// Begin begins a Context that is part of something else. Call it once.
func (c *Context) Begin(parent context.Context) { c.BeginWith(parent, nil, nil) }

// BeginWith is Begin for one that carries a value, as context.WithValue's do.
func (c *Context) BeginWith(parent context.Context, key, value any) {
	c.parent, c.key, c.value = parent, key, value
	c.above.Watch(parent, (*below)(c))
}

// below is a Context as its parent sees it.
type below Context

// Ended implements Ender.
func (b *below) Ended() {
	c := (*Context)(b)
	c.end(c.parent.Err(), context.Cause(c.parent))
}

// End ends the Context, for a reason that context.Cause tells: nil is context.Canceled. Only the first call counts. What
// watches it is told before End returns.
func (c *Context) End(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	c.above.Leave()
	c.end(context.Canceled, cause)
}

func (c *Context) end(err, cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err, c.cause = err, cause
	told := c.first
	c.first = nil
	for h := told; h != nil; h = h.next {
		h.told = true
	}
	if c.std != nil {
		c.stop(cause)
	}
	c.mu.Unlock()
	for told != nil {
		h := told
		told = h.next
		h.who.Ended()
	}
}

// Deadline implements context.Context.
func (c *Context) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done implements context.Context.
func (c *Context) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.standard().Done()
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
	if c.std != nil || c.err != nil {
		std = c.standard() // that is where the library looks for the cause
	}
	c.mu.Unlock()
	if std != nil {
		return std.Value(key)
	}
	return c.parent.Value(key)
}

// standard is one of the library's own contexts with the same life and the parent's values. The lock is held.
func (c *Context) standard() context.Context {
	if c.std == nil {
		c.std, c.stop = context.WithCancelCause(context.WithoutCancel(c.parent))
		if c.err != nil {
			c.stop(c.cause)
		}
	}
	return c.std
}
