package spec

// usualResumeText is how long a kept text may be where the spec says nothing, in bytes.
const usualResumeText = 256 << 10

// Resumes says whether a tenant's streams may go on elsewhere when they are cut, and how long a text may be for that, in
// bytes. A tenant that is not known forbids nothing.
func (s *Spec) Resumes(tenant string) (text int, ok bool) {
	text = usualResumeText
	if s.Routing.ResumeText != nil {
		text = *s.Routing.ResumeText
	}
	if t := s.Tenant(tenant); t != nil && t.Resume != nil && !*t.Resume {
		return 0, false
	}
	return text, text > 0
}
