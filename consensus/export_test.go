package consensus

import "context"

// Kill ends the node as a crash would, as far as peers can see: no leadership is handed on, and nothing is recorded.
func (n *Node) Kill() {
	n.stopped.Store(true)
	n.disconnect()
	n.cancel()
	_ = n.shutRaft(context.Background())
	n.wg.Wait()
	_ = n.closeStore()
}

// Compact takes a snapshot and drops all but the last entry of the log.
func (n *Node) Compact() error {
	c := n.raft.ReloadableConfig()
	c.TrailingLogs = 1
	if err := n.raft.ReloadConfig(c); err != nil {
		return err
	}
	return n.raft.Snapshot().Error()
}

// FirstEntry is the index of the oldest entry in the log on disk.
func (n *Node) FirstEntry() (uint64, error) { return n.store.FirstIndex() }

// DecodeMembership is decodeMembership.
var DecodeMembership = decodeMembership
