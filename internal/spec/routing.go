package spec

// AsksUsage reports whether engines are asked for the usage of streams whose clients did not ask.
func (r *Routing) AsksUsage() bool { return r.UsageInStreams == nil || *r.UsageInStreams }
