package spec

// defaultResumeText is the longest text kept for resumption if the spec sets none, in bytes.
const defaultResumeText = 256 << 10

// ResumeLimit reports whether a tenant's streams may be resumed elsewhere, and the longest text kept for that,
// in bytes. An unknown tenant has no restriction.
func (s *Spec) ResumeLimit(tenant string) (text int, ok bool) {
	text = defaultResumeText
	if s.Routing.ResumeText != nil {
		text = *s.Routing.ResumeText
	}
	if t := s.FindTenant(tenant); t != nil && t.Resume != nil && !*t.Resume {
		return 0, false
	}
	return text, text > 0
}
