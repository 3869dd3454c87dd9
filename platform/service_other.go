//go:build !linux && !darwin && !windows

package platform

import (
	"context"
	"errors"
	"os"
)

const serviceManager = "none"

// servicePath has nothing to return: services here are the machine's, started by
// scripts of root, and auto-start serves a user better.
func servicePath(ServiceOptions) (string, error) { return "", nil }

func (s *Service) available(context.Context) error {
	return &NoServicesError{"this system has no services of a user"}
}

func (s *Service) text() (string, error)                  { return "", errors.ErrUnsupported }
func (s *Service) verify(context.Context, string) error   { return errors.ErrUnsupported }
func (s *Service) register(context.Context, string) error { return errors.ErrUnsupported }
func (s *Service) unregister(context.Context)             { _ = os.Remove(s.path) }
func (s *Service) control(context.Context, string) error  { return errors.ErrUnsupported }
func (s *Service) ask() string                            { return "" }
func (s *Service) status(context.Context) (ServiceStatus, error) {
	return ServiceStatus{Manager: serviceManager}, errors.ErrUnsupported
}

// Lingers is not known here.
func (s *Service) Lingers() (lingers, known bool) { return false, false }
