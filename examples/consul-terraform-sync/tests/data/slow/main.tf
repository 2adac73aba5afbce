# Takes its time, as many seconds as the file `seconds` says, or two: says when it begins, and
# writes the instances when it is done.

variable "services" {
  type = map(object({ id = string }))
}

variable "folder" {
  type = string
}

resource "terraform_data" "instances" {
  triggers_replace = sort([for service in var.services : service.id])

  provisioner "local-exec" {
    command = "touch \"$FOLDER/begun\" && sleep \"$(cat \"$FOLDER/seconds\" 2>/dev/null || echo 2)\" && printf '%s\\n' \"$IDS\" > \"$FOLDER/instances\""
    environment = {
      FOLDER = var.folder
      IDS    = join(" ", sort([for service in var.services : service.id]))
    }
  }
}
