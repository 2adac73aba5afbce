# Reads another task's state from S3 with the credentials in its environment, and writes the
# number of its outputs into one file for each service instance.

variable "services" {
  type = map(object({
    id   = string
    port = number
  }))
}

variable "directory" {
  type = string
}

variable "pause" {
  type    = number
  default = 0
}

variable "s3" {
  type = string
}

data "terraform_remote_state" "other" {
  backend   = "s3"
  workspace = "test"
  config    = jsondecode(var.s3)
}

resource "terraform_data" "read" {
  for_each = var.services

  input            = "${var.directory}/${each.value.id}"
  triggers_replace = [each.value.port]

  provisioner "local-exec" {
    command = "echo '${length(keys(data.terraform_remote_state.other.outputs))}' > '${self.input}'"
  }
}
