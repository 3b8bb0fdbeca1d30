package sim

// Service is what one tenant had at one time.
type Service struct {
	// Prompt tokens that were computed for it and Output tokens that it was given, since the start, in answers that have begun.
	Prompt int64 `json:"prompt_tokens"`
	Output int64 `json:"output_tokens"`
	// Waiting are its requests in the zones' queues now.
	Waiting int `json:"waiting"`
}

// serve books what an attempt that is over has taken of its worker.
func (r *run) serve(x *ride) {
	if n := x.req.Tenant; n >= 0 && int(n) < len(r.services) {
		r.services[n].take(x)
	}
}

// take adds what a request has had from the worker that it is at.
func (s *Service) take(x *ride) {
	if x.seq == nil || x.seq.Generated() == 0 {
		return
	}
	s.Prompt += int64(max(x.req.PromptTokens+x.made-x.seq.Cached(), 0))
	s.Output += int64(x.seq.Generated())
}

// had is what tenants have had by now; nil where everybody is one.
func (r *run) had() []Service {
	if len(r.services) < 2 {
		return nil
	}
	out := append([]Service(nil), r.services...)
	for _, x := range r.rides {
		n := x.req.Tenant
		if n < 0 || int(n) >= len(out) {
			continue
		}
		out[n].take(x)
		if x.visit != nil && x.worker == nil {
			out[n].Waiting++
		}
	}
	return out
}
