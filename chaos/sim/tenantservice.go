package sim

// TenantService is what one tenant has been served by one time.
type TenantService struct {
	// PromptTokens computed for it and OutputTokens generated for it, since the start, in answers that have begun.
	PromptTokens int64 `json:"prompt_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Waiting are its requests in the zones' queues now.
	Waiting int `json:"waiting"`
}

// recordService adds the work of an ended attempt.
func (rec *recorder) recordService(x *simulatedRequest) {
	if n := x.req.Tenant; n >= 0 && int(n) < len(rec.tenantServices) {
		rec.tenantServices[n].addAttempt(x)
	}
}

// addAttempt adds the work of a request at its current worker.
func (s *TenantService) addAttempt(x *simulatedRequest) {
	if x.sequence == nil || x.sequence.GeneratedTokens() == 0 {
		return
	}
	s.PromptTokens += int64(max(x.req.PromptTokens+x.priorTokens-x.sequence.CachedTokens(), 0))
	s.OutputTokens += int64(x.sequence.GeneratedTokens())
}

// tenantServiceNow is what tenants have been served by now; nil for a single tenant.
func (rec *recorder) tenantServiceNow() []TenantService {
	if len(rec.tenantServices) < 2 {
		return nil
	}
	out := append([]TenantService(nil), rec.tenantServices...)
	for _, x := range rec.requests.active {
		n := x.req.Tenant
		if n < 0 || int(n) >= len(out) {
			continue
		}
		out[n].addAttempt(x)
		if x.zoneRequest != nil && x.worker == nil {
			out[n].Waiting++
		}
	}
	return out
}
