package otlpclient

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// tls returns the TLS configuration of connections.
func (c *Config) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.Certificate != "" {
		text, err := os.ReadFile(c.Certificate)
		if err != nil {
			return nil, fmt.Errorf("certificates to trust: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates to trust: %s has none in PEM format", c.Certificate)
		}
	}
	if c.ClientCertificate != "" {
		own, err := tls.LoadX509KeyPair(c.ClientCertificate, c.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		t.Certificates = []tls.Certificate{own}
	}
	return t, nil
}

// stamp returns a string that changes when one of the certificate files changes.
func (c *Config) stamp() (all string) {
	for _, name := range []string{c.Certificate, c.ClientCertificate, c.ClientKey} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			all += err.Error() // loading the file reports it
			continue
		}
		all += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), ";")
	}
	return all
}
