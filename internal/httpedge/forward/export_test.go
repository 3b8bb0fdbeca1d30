package forward

// IsReading reports whether a read of the client's body is in progress.
func (b *ReplayBody) IsReading() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readDone != nil
}
