package spec

// RequestsUsage reports whether engines are asked for the usage of streams whose clients did not ask.
func (r *Routing) RequestsUsage() bool { return r.UsageInStreams == nil || *r.UsageInStreams }
