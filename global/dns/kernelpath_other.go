//go:build !linux

package dns

// kernelPath exists on Linux only.
type kernelPath struct{}

func (s *Server) openKernelPath() {
	if len(s.cfg.XDP) > 0 {
		s.cfg.Log.Warn("dns.xdp needs Linux: sockets answer all queries; remove dns.xdp from the config")
	}
}

func (k *kernelPath) start() {}
func (k *kernelPath) stop()  {}
