package reqctx

import "context"

// EndHandler is notified of the end of a context. It must not block.
type EndHandler interface{ EndRequest() }

// EndHook registers an EndHandler with a context. It can be used once.
type EndHook struct {
	handler    EndHandler
	ctx        *Context
	next, prev *EndHook
	fired      bool
	stopStd    func() bool // for a context of another type
}

// WatchContext notifies who when ctx ends, at once if it has ended.
func (h *EndHook) WatchContext(ctx context.Context, who EndHandler) {
	h.handler = who
	c, ours := ctx.(*Context)
	if !ours {
		if ctx.Done() != nil {
			h.stopStd = context.AfterFunc(ctx, who.EndRequest)
		}
		return
	}
	h.ctx = c
	c.mu.Lock()
	over := c.err != nil
	if h.fired = over; !over {
		if h.next = c.firstHook; h.next != nil {
			h.next.prev = h
		}
		c.firstHook = h
	}
	c.mu.Unlock()
	if over {
		who.EndRequest()
	}
}

// StopWatching ends the watch. It returns false if the handler was or is being notified, like the stop function
// of context.AfterFunc.
func (h *EndHook) StopWatching() bool {
	if h.ctx == nil {
		return h.stopStd == nil || h.stopStd()
	}
	c := h.ctx
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.fired {
		return false
	}
	h.fired = true
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		c.firstHook = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	}
	return true
}
