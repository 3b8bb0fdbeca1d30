package spec

// Values of routing.hash_key; HashKeyHeader precedes the name of a header.
const (
	HashKeySession = "session"
	HashKeyTenant  = "tenant"
	HashKeyPrefix  = "prefix"
	HashKeyHeader  = "header:"
)

// MaxObjectives bounds the objectives: a request that names one searches the list.
const MaxObjectives = 64

// ObjectiveClass returns the class of an objective; ok is false if the name is unknown.
func (s *Spec) ObjectiveClass(name string) (c Class, ok bool) {
	for i := range s.Routing.Objectives {
		if o := &s.Routing.Objectives[i]; o.Name == name {
			return o.Class, true
		}
	}
	c, err := ParseClass(name)
	return c, err == nil
}

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

// RequestsUsage reports whether engines are asked for the usage of streams whose clients did not ask.
func (r *Routing) RequestsUsage() bool { return r.UsageInStreams == nil || *r.UsageInStreams }
