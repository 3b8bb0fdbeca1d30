package local

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
	"github.com/spillway-lb/spillway/local/endpointpicker"
	"github.com/spillway-lb/spillway/local/sched"
)

// pickerChooser chooses workers for proxies with the scheduler of the zone's own listener.
type pickerChooser struct {
	*requestHandler
	fallbacks int
}

// BodyTimeout implements endpointpicker.Chooser.
func (c *pickerChooser) BodyTimeout() time.Duration {
	if c.cfg.BodyTimeout > 0 {
		return c.cfg.BodyTimeout
	}
	return defaultBodyTimeout
}

// defaultBodyTimeout bounds the time for a body to arrive, as forward.BodyLimits does.
const defaultBodyTimeout = 30 * time.Second

// OpenRequest implements endpointpicker.Chooser.
func (c *pickerChooser) OpenRequest(h *endpointpicker.RequestHead) (endpointpicker.PickRequest, *endpointpicker.PickRefusal) {
	r, extra := h.Request, c.policy.Load().Spec.Routing.ExtraPaths
	shape, posts := paths.MatchPath(paths.HTTP, r.URL, extra)
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	_, lists := openai.IsModelsPath(r.URL.Path)
	p := &pickerRequest{chooser: c, head: h, target: requestTarget(r.URL), lists: reads && lists, extra: http.Header{}}
	if p.lists {
		return p, nil
	}
	if r.Method != http.MethodPost || !posts || forward.KindOf(r) != forward.Buffered {
		return nil, c.refuseHead(forward.RefuseUnserved(http.Header{}, r, extra))
	}
	if c.stopping.Load() {
		return nil, &endpointpicker.PickRefusal{Error: openai.NoCapacity("", openai.MinRetryAfter), Unable: true}
	}
	v := newZoneRequest(r, shape)
	v.Destinations = &sched.DestinationLimit{}
	if h.Limited {
		v.Destinations.Subset = make(map[string]struct{}, len(h.Subset))
		for _, at := range h.Subset {
			v.Destinations.Subset[at] = struct{}{}
		}
	}
	p.request = v
	if e := c.readHop(v); e != nil {
		return nil, c.refuseHead(e)
	}
	v.bodyCharge = c.bodyMemory.NewCharge(v.Tenant)
	p.life, p.giveUp = context.WithCancelCause(context.Background())
	return p, nil
}

func (c *pickerChooser) refuseHead(e *openai.Error) *endpointpicker.PickRefusal {
	c.metrics.countRefused(e)
	return &endpointpicker.PickRefusal{Error: e}
}
