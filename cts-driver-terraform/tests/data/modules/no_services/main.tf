# Has no variable for what comes from Consul.

variable "directory" {
  type = string
}
