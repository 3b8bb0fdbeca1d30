package health

import "time"

// GPUHealth is the reading of one GPU from an exporter.
type GPUHealth struct {
	// XID is the driver's last error code; 0 for none. It stays until the driver is reset.
	XID int64
	// RemapFailed reports that the spare rows for broken memory are used up.
	RemapFailed bool
	// Used and Free memory, in bytes.
	Used, Free int64
}

// gpuHistory is the previous reading, so that only changes count: a code from before a repair stays on the exporter's
// page.
type gpuHistory struct {
	hasReport    bool
	lastXID      int64
	failedRemaps int
}

// isFatalXID reports the codes after which a GPU no longer computes, or not correctly (NVIDIA, "XID errors"):
// double-bit ECC, a halted controller, failed row remapping, NVLink, fallen off the bus, contained and uncontained
// ECC, and a dead GSP. Codes that a program can cause, such as 13, 31 and 43, are not included.
func isFatalXID(code int64) bool {
	switch code {
	case 48, 62, 64, 74, 79, 94, 95, 110, 119, 120, 140:
		return true
	}
	return false
}

// minFreeMemoryShare is the fraction of free memory below which a GPU is nearly out of memory. Engines allocate
// nearly all of it and keep a few percent free for temporary use.
const minFreeMemoryShare = 0.005

// RecordGPUHealth records a reading of all the worker's GPUs. A new fatal code or a new failed remap quarantines the
// worker; nearly exhausted memory halves its share while it lasts.
func (b *Breaker) RecordGPUHealth(list []GPUHealth, now time.Time) {
	was := b.gpuState
	next := gpuHistory{hasReport: true}
	b.memoryTight = false
	for _, c := range list {
		if isFatalXID(c.XID) {
			next.lastXID = max(next.lastXID, c.XID)
		}
		if c.RemapFailed {
			next.failedRemaps++
		}
		if total := c.Used + c.Free; c.Used > 0 && c.Free >= 0 && float64(c.Free) < minFreeMemoryShare*float64(total) {
			b.memoryTight = true
		}
	}
	b.gpuState = next
	if was.hasReport && (next.lastXID != 0 && next.lastXID != was.lastXID || next.failedRemaps > was.failedRemaps) {
		b.openBreaker(GPUFault, now)
	}
}

// IsMemoryTight reports whether the worker's share is halved for lack of GPU memory.
func (b *Breaker) IsMemoryTight() bool { return b.memoryTight }
