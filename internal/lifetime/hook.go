package lifetime

import "context"

// Ender is told of an end. It must not wait for anything.
type Ender interface{ Ended() }

// Hook is held by what wants to know when a context ends. It serves once.
type Hook struct {
	who        Ender
	at         *Context
	next, prev *Hook
	told       bool
	stop       func() bool // at a context that is none of ours
}

// Watch has who told when ctx ends: at once, where that has happened.
func (h *Hook) Watch(ctx context.Context, who Ender) {
	h.who = who
	c, ours := ctx.(*Context)
	if !ours {
		if ctx.Done() != nil {
			h.stop = context.AfterFunc(ctx, who.Ended)
		}
		return
	}
	h.at = c
	c.mu.Lock()
	over := c.err != nil
	if h.told = over; !over {
		if h.next = c.first; h.next != nil {
			h.next.prev = h
		}
		c.first = h
	}
	c.mu.Unlock()
	if over {
		who.Ended()
	}
}

// Leave ends the watch. It is false when who was told or is being told, as the stop of context.AfterFunc is.
func (h *Hook) Leave() bool {
	if h.at == nil {
		return h.stop == nil || h.stop()
	}
	c := h.at
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.told {
		return false
	}
	h.told = true
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		c.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	return true
}
