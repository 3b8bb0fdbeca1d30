package relay

// Reading reports whether a read of the client's body is under way.
func (b *Replay) Reading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ready != nil
}
