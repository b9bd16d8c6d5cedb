package otlpclient

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"fulgur/internal/export/otlptest"
)

// TestTLS checks that servers are verified, and that certificates are read again.
func TestTLS(t *testing.T) {
	https := httptest.NewUnstartedServer(otlptest.NewReceiver(t, nil))
	https.StartTLS()
	defer https.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	certificate := tls.Certificate{Certificate: https.TLS.Certificates[0].Certificate, PrivateKey: https.TLS.Certificates[0].PrivateKey}
	grpcURL := "https" + otlptest.NewReceiver(t, nil).GRPC(grpc.Creds(credentials.NewServerTLSFromCert(&certificate)))[len("http"):]
	other, _ := pem.Decode([]byte(otherAuthority))
	if _, err := x509.ParseCertificate(other.Bytes); err != nil {
		t.Fatal(err)
	}
	for p, url := range map[Protocol]string{HTTP: https.URL, GRPC: grpcURL} {
		if _, err := dial(t, url, p).Send(t.Context(), message(t)); err == nil {
			t.Errorf("%s: got no error for a server that the system does not trust", p)
		}
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(file, []byte(otherAuthority), 0o600); err != nil {
			t.Fatal(err)
		}
		c := dial(t, url, p, "OTEL_EXPORTER_OTLP_CERTIFICATE", file)
		if _, err := c.Send(t.Context(), message(t)); err == nil {
			t.Errorf("%s: got no error for a server of another authority", p)
		}
		if err := os.WriteFile(file, authority, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Send(t.Context(), message(t)); err != nil {
			t.Errorf("%s: after the file has changed: %v", p, err)
		}
	}
}

// otherAuthority signed no server.
const otherAuthority = `-----BEGIN CERTIFICATE-----
MIIBQTCB6aADAgECAgEBMAoGCCqGSM49BAMCMBAxDjAMBgNVBAMTBW90aGVyMCAX
DTcwMDEwMTAwMDAwMFoYDzIyNDIwMzE2MTI1NjMyWjAQMQ4wDAYDVQQDEwVvdGhl
cjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFmMCfivj5yVx9dOevf1KQbTgxQr
MwY8e/7B29laHgqT3JzXPjSdwXJZD0TiLLwTeLy/MU2Ufr6jnvsMuSPFsvijMjAw
MA8GA1UdEwEB/wQFMAMBAf8wHQYDVR0OBBYEFHAbTNFXWgbHs2PcvHIR5i3ovGZx
MAoGCCqGSM49BAMCA0cAMEQCIERk9pPCTSbAL5wSlxphW5TMELo56l94gBV2dC3o
ljQTAiBAnNe8iMOdb9CFFHR9tncPnVTb7tukiyI5XM40OQkCqw==
-----END CERTIFICATE-----
`
