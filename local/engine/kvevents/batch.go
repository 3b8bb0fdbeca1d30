package kvevents

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// Kind of an event.
type Kind uint8

// The kinds of events. What is of another kind is counted as ignored.
const (
	Stored Kind = iota + 1
	Removed
	Cleared
)

// Event is one change of an engine's cache on its GPU.
type Event struct {
	Kind Kind
	// Hashes of the blocks, in the order of the prompt when they are stored.
	Hashes []uint64
	// Parent is the block before the first one, when HasParent.
	Parent    uint64
	HasParent bool
	// BlockTokens is how many tokens a stored block holds.
	BlockTokens int
	// Group is the cache group of engines that keep several kinds of cache; -1 when none is named.
	Group int
}

// Batch is what one step of an engine has changed.
type Batch struct {
	Events []Event
	// Rank of the data-parallel engine; -1 when none is named.
	Rank int
	// Ignored events: unknown ones, and those of caches that are not the GPU's or are no whole prefix.
	Ignored int
}

const (
	maxEvents = 1 << 16
	maxHashes = 1 << 18
	// maxBlockTokens bounds what is believed of a block's size.
	maxBlockTokens = 1 << 16
	maxRank        = 1 << 12
)

// Decoder reads batches. What it returns is good until its next call.
type Decoder struct {
	batch  Batch
	hashes []uint64
	field  fields
}

// fields is one event as it comes, before it is judged.
type fields struct {
	name      []byte
	at        int // of its hashes in the decoder's arena
	n         int
	parent    uint64
	hasParent bool
	block     uint64
	medium    []byte
	group     int
	spec      []byte
	locality  []byte
	wrong     bool
}

// Decode reads the payload of one message.
func (d *Decoder) Decode(payload []byte) (*Batch, error) {
	p := pack{b: payload}
	d.batch = Batch{Events: d.batch.Events[:0], Rank: -1}
	d.hashes = d.hashes[:0]
	if err := d.envelope(&p); err != nil {
		return nil, fmt.Errorf("reading a batch of cache events: %w", err)
	}
	// The arena may have moved while it grew: the events are laid over it now.
	at := 0
	for i := range d.batch.Events {
		e := &d.batch.Events[i]
		n := len(e.Hashes)
		e.Hashes = d.hashes[at : at+n : at+n]
		at += n
	}
	return &d.batch, nil
}

func (d *Decoder) envelope(p *pack) error {
	if n, ok := p.array(); ok {
		for i := range n {
			switch i {
			case 1:
				if err := d.events(p); err != nil {
					return err
				}
			case 2:
				d.rank(p)
			default:
				p.skip()
			}
		}
		return p.ended(n >= 2)
	}
	n, ok := p.object()
	if !ok {
		return errPack
	}
	found := false
	for range n {
		switch key, _ := p.text(); string(key) {
		case "events":
			found = true
			if err := d.events(p); err != nil {
				return err
			}
		case "data_parallel_rank":
			d.rank(p)
		default:
			p.skip()
		}
	}
	return p.ended(found)
}

func (p *pack) ended(whole bool) error {
	if p.bad || !whole {
		return errPack
	}
	return nil
}

func (d *Decoder) rank(p *pack) {
	if p.isNil() {
		return
	}
	if r, ok := p.integer(); ok && r <= maxRank {
		d.batch.Rank = int(r)
		return
	}
	p.skip()
}

func (d *Decoder) events(p *pack) error {
	n, ok := p.array()
	if !ok || n > maxEvents {
		return fmt.Errorf("%w: no list of events, or one of more than %d", errPack, maxEvents)
	}
	for range n {
		d.event(p)
		if p.bad {
			return errPack
		}
		if len(d.hashes) > maxHashes {
			return fmt.Errorf("%w: more than %d blocks", errPack, maxHashes)
		}
	}
	return nil
}

// event reads one event of either form. One that is not understood is stepped over and counted.
func (d *Decoder) event(p *pack) {
	d.field = fields{at: len(d.hashes), group: -1}
	if n, ok := p.array(); ok {
		for i := range n {
			d.positional(p, i)
		}
	} else if n, ok := p.object(); ok {
		for range n {
			key, ok := p.text()
			if !ok {
				p.skip()
			}
			d.named(p, string(key))
		}
	} else {
		p.skip()
		d.field.wrong = true
	}
	if !p.bad {
		d.judge()
	}
}

// storedFields and removedFields are the names of the positional form's members after the first.
func storedFields() []string {
	return []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window", "locality"}
}

func removedFields() []string { return []string{"block_hashes", "medium", "group_idx", "locality"} }

func (d *Decoder) positional(p *pack, i int) {
	if i == 0 {
		d.named(p, "type")
		return
	}
	var names []string
	switch string(d.field.name) {
	case "BlockStored":
		names = storedFields()
	case "BlockRemoved":
		names = removedFields()
	}
	name := ""
	if i <= len(names) {
		name = names[i-1]
	}
	d.named(p, name)
}

func (d *Decoder) named(p *pack, name string) {
	f := &d.field
	ok := true
	switch name {
	case "type":
		f.name, ok = p.text()
	case "block_hashes":
		ok = d.list(p)
	case "parent_block_hash":
		if !p.isNil() {
			f.parent, ok = p.hash()
			f.hasParent = ok
		}
	case "block_size":
		f.block, ok = p.integer()
	case "medium":
		ok = optional(p, &f.medium)
	case "kv_cache_spec_kind":
		ok = optional(p, &f.spec)
	case "locality":
		ok = optional(p, &f.locality)
	case "group_idx":
		if !p.isNil() {
			var g uint64
			if g, ok = p.integer(); ok && g < math.MaxInt16 {
				f.group = int(g)
			} else {
				f.wrong = true
			}
		}
	default:
		p.skip()
	}
	if !ok {
		p.skip()
		f.wrong = true
	}
}

func optional(p *pack, into *[]byte) (ok bool) {
	if p.isNil() {
		return true
	}
	*into, ok = p.text()
	return ok
}

func (d *Decoder) list(p *pack) bool {
	n, ok := p.array()
	if !ok {
		return false
	}
	d.hashes = d.hashes[:d.field.at]
	for range n {
		h, ok := p.hash()
		if !ok {
			p.skip()
			d.field.wrong = true
			continue
		}
		d.hashes = append(d.hashes, h)
	}
	d.field.n = len(d.hashes) - d.field.at
	return true
}

// judge keeps the event, or drops what it brought.
func (d *Decoder) judge() {
	f := &d.field
	e := Event{Hashes: d.hashes[f.at : f.at+f.n], Group: f.group}
	switch string(f.name) {
	case "BlockStored":
		e.Kind, e.Parent, e.HasParent, e.BlockTokens = Stored, f.parent, f.hasParent, int(min(f.block, maxBlockTokens+1))
		f.wrong = f.wrong || f.n == 0 || f.block == 0 || f.block > maxBlockTokens
	case "BlockRemoved":
		e.Kind = Removed
		f.wrong = f.wrong || f.n == 0
	case "AllBlocksCleared":
		e.Kind, e.Hashes = Cleared, nil
		d.hashes = d.hashes[:f.at]
	default:
		f.wrong = true
	}
	if f.wrong || !f.onGPU() || !f.wholePrefix() {
		d.hashes = d.hashes[:f.at]
		d.batch.Ignored++
		return
	}
	d.batch.Events = append(d.batch.Events, e)
}

// onGPU says that the block is in the memory of the engine's own GPU, where a hit costs nothing.
func (f *fields) onGPU() bool {
	return (len(f.medium) == 0 || bytes.EqualFold(f.medium, []byte("GPU"))) && !bytes.EqualFold(f.locality, []byte("REMOTE"))
}

// wholePrefix says that the block's cache keeps prompts from their beginning. Of a sliding window or a state nothing can
// be told about prefixes.
func (f *fields) wholePrefix() bool {
	s := strings.ToLower(string(f.spec))
	return !strings.Contains(s, "sliding") && !strings.Contains(s, "mamba") && !strings.Contains(s, "chunked")
}
