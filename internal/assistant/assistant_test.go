package assistant
