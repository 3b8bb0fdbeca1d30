package health

import "time"

// Card is what an exporter says of one GPU.
type Card struct {
	// XID is the driver's last error code; 0 for none. It stays until the driver is reset.
	XID int64
	// RemapFailed says that it has run out of spare rows for broken memory.
	RemapFailed bool
	// Used and Free memory, in bytes.
	Used, Free int64
}

// cards is what was said last, so that only news counts: a code from before a repair stays on the exporter's page.
type cards struct {
	heard  bool
	xid    int64
	failed int
}

// fatalXID are the codes after which a GPU does not compute any more, or not rightly (NVIDIA, "XID errors"): double-bit
// ECC, a halted controller, row remapping failed, NVLink, fallen off the bus, ECC contained and not, and a dead GSP.
// Those that a program brings about by itself, such as 13, 31 and 43, are not among them.
func fatalXID(code int64) bool {
	switch code {
	case 48, 62, 64, 74, 79, 94, 95, 110, 119, 120, 140:
		return true
	}
	return false
}

// tightMemory is the free share under which a GPU is nearly out of memory. Engines take nearly all of it, and keep a
// few percent free for what comes and goes.
const tightMemory = 0.005

// Exported books what an exporter says of all the worker's GPUs. A fatal code or a failed remap that is new quarantines;
// memory that is nearly all used halves the worker's share until it is not.
func (b *Breaker) Exported(list []Card, now time.Time) {
	was := b.card
	next := cards{heard: true}
	b.tight = false
	for _, c := range list {
		if fatalXID(c.XID) {
			next.xid = max(next.xid, c.XID)
		}
		if c.RemapFailed {
			next.failed++
		}
		if total := c.Used + c.Free; c.Used > 0 && c.Free >= 0 && float64(c.Free) < tightMemory*float64(total) {
			b.tight = true
		}
	}
	b.card = next
	if was.heard && (next.xid != 0 && next.xid != was.xid || next.failed > was.failed) {
		b.open(GPU, now)
	}
}

// Tight says whether the worker's share is halved for lack of GPU memory.
func (b *Breaker) Tight() bool { return b.tight }
