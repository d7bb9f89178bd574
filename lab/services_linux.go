package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/muster-dev/muster/lab/machine"
	"github.com/muster-dev/muster/lab/metadata"
	"github.com/muster-dev/muster/lab/network"
)

// services are what a cloud offers to its machines, on their network: metadata, the
// region's APIs behind certificates that the machines trust, and what else is forwarded.
type services struct {
	all      []*http.Server
	forwards []*network.Forward
}

// startServices serves the machines of a fleet. Without a URL of the region's APIs there
// are none.
func startServices(ctx context.Context, n *network.Network, fleet *machine.Fleet, told *notices, a authority, o machineSettings) (*services, error) {
	s := &services{}
	find := func(address string) (metadata.Instance, bool) {
		m := fleet.At(address)
		if m == nil {
			return metadata.Instance{}, false
		}
		return metadata.Instance{ID: m.Spec.ID, Address: address, Zone: m.Spec.Zone, Region: m.Spec.Region, Type: m.Spec.Type, UserData: m.Spec.UserData, Notices: told.of(m.Spec.ID)}, true
	}
	if err := s.serve(ctx, n, net.JoinHostPort(network.Metadata, "80"), metadata.New(find), nil); err != nil {
		return nil, fmt.Errorf("starting the metadata service: %w", err)
	}
	for _, f := range o.forwards {
		started, err := n.Forward(ctx, net.JoinHostPort(network.Gateway, f.port), f.target)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("--forward %s=%s: %w", f.port, f.target, err), s.close())
		}
		s.forwards = append(s.forwards, started)
	}
	if o.aws == "" {
		return s, nil
	}
	target, err := url.Parse(o.aws)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--aws %s: %w", o.aws, err), s.close())
	}
	names := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) { return a.issue(h.ServerName) }}
	if err := s.serve(ctx, n, net.JoinHostPort(network.Gateway, "443"), httputil.NewSingleHostReverseProxy(target), names); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the region's services: %w", err), s.close())
	}
	return s, nil
}

func (s *services) serve(ctx context.Context, n *network.Network, address string, h http.Handler, secure *tls.Config) error {
	l, err := n.Listen(ctx, address)
	if err != nil {
		return err
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	s.all = append(s.all, server)
	go func() { _ = server.Serve(l) }()
	return nil
}

func (s *services) close() error {
	var errs []error
	for _, server := range s.all {
		errs = append(errs, server.Close())
	}
	for _, f := range s.forwards {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
